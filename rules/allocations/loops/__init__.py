"""DG506, DG512, DG515, DG517: work that is done round by round, and need not be."""
