"""Gated delta rule (GDN): chunked prefill, token-by-token oracle and decode update."""
