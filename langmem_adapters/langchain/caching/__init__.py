"""What LangChain's caches share: when two requests are the same, and how answers are kept and given back."""
