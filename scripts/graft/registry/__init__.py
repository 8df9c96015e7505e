"""Repositories of images in OCI registries: names, credentials, blobs, manifests, what is attached to them.

An own client on `graft.net`: a registry is HTTP with few rules, and what matters here (what is tried again, in which
order things are written, what is read back) is what the programs for it leave to chance. Reasons: docs/publish.md.
"""
