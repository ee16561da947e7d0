"""Documents on their way to execution: parsed, limited, validated and costed, once for each text."""
