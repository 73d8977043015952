"""The steps of a run over a whole project: files to facts, to hot functions, to briefs, to findings."""
