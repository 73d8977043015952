"""DG1xx: trees that are walked on hot paths where there is one tensor, or nothing to walk for."""
