"""The live score pipeline: providers tell, pollers compare and write, live activities and subscriptions follow."""
