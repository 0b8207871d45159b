"""From a conversation to a prompt, and from a model's text to reasoning and answer.

Pure text: nothing here knows of token ids, threads or llama.cpp.
"""
