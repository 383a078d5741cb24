"""Tests of the consumer against a server that they play."""
