"""What is measured: one program per suite, each able to do the same work with every peer.

The runner starts them as `python FILE PEER CASE`, with CASE as JSON, in the peers' environment; each prints
one line of JSON with what it measured about itself. Loop bodies are equally thin for every peer: what
differs is the call under test.
"""
