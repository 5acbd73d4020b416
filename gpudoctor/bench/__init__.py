"""The decode benchmark: the engine, a client beside it, and before judged against after."""
