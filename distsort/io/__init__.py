"""Files in and out: readers, writers and the commit of an output."""
