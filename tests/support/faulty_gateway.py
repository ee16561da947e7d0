"""`gateway.py` with faults that no client and no service causes: a wrong clock, and a defect.

`CLOCK_AHEAD` is the number of seconds by which the clock of its machine is ahead. A request with the header `X-Defect`
meets a defect of the gateway outside of operations.
"""

import os
import time
from typing import Any

from gateway import cli
from server.http.endpoint import GraphQLHTTP


def main() -> None:
    ahead, right_time, respond = float(os.environ.get("CLOCK_AHEAD", "0")), time.time, GraphQLHTTP._response

    async def defective(endpoint: GraphQLHTTP, scope: Any, headers: Any, *others: Any) -> Any:
        if headers.get("x-defect") is not None:
            raise LookupError("This is a defect of the gateway.")
        return await respond(endpoint, scope, headers, *others)

    vars(time)["time"] = lambda: right_time() + ahead
    GraphQLHTTP._response = defective  # type: ignore[assignment, method-assign]
    cli()


if __name__ == "__main__":
    main()
