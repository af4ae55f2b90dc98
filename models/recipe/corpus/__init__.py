"""From package wheels to token shards: sources, transcripts, tokenizer, held-out text."""
