"""What a review says, for people and for code hosts."""
