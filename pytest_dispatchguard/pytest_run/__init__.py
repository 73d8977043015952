"""The parts of a pytest run that the plugin switches on."""
