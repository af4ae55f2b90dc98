"""How the embedded checkpoint was made: corpus, tokenizer, trainer."""
