"""The law of the iterates, exactly, at a cost per step that does not depend on the dimension."""
