"""Source text to findings: scout, heat, judge, fix. Never imports torch, never runs the code it reads."""
