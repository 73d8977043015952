"""The processes that measure, and how they are talked to."""
