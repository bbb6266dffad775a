"""Our own plugins. The programs in ../bin call them; nothing is imported here, to keep a program small."""
