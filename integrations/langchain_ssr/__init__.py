"""SSR Local in LangChain: `ChatSSR`, a chat model that runs a local reasoning model.

    from langchain_ssr import ChatSSR

    llm = ChatSSR(model="qwen3-4b")
    print(llm.invoke("Why is the sky blue?").content)

Owns the translation between LangChain's messages and options and the engine's requests and events.
Text only for now: tools, structured output and images are refused, never ignored.
"""

from __future__ import annotations

from langchain_ssr.chat_model import ChatSSR

__all__ = ["ChatSSR"]
