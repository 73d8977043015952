"""`dispatchguard mcp`: tools for coding agents, and the server that offers them."""
