"""How providers of models spell the same thing: content blocks, finish reasons, ids of tool calls, tokens."""
