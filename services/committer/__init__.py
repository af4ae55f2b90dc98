"""The committer: makes one accepted path durable, all of it or nothing."""
