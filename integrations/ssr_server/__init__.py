"""The place of the OpenAI-compatible HTTP server (`ssr-serve`). It is not there yet.

Until it is: `ssr_local` from Python, `langchain_ssr` from LangChain, `ssr generate` from a shell.
"""
