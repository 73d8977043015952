"""The commands that set up a project, an editor, a shell or the background process."""
