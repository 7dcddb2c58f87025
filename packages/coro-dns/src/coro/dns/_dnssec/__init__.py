"""Validation of answers (DNSSEC, RFC 4033 to 4035): `signatures` checks one signature, `denial` the proofs that there
is nothing, `validator` the chain from a trust anchor to an answer. Names and data are in wire form throughout."""
