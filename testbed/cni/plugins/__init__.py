"""Our own plugins. The programs in ../bin call them; nothing is imported here, for a program needs little."""
