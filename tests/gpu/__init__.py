"""Tests that need a GPU, and the evidence that they ran: CI has none, so a run leaves evidence.json behind."""
