"""The text of a review, for people and for code hosts."""
