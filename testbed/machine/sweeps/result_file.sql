CREATE TABLE sweep (scenario TEXT NOT NULL, made_from TEXT NOT NULL);
CREATE TABLE runs (
    variant TEXT NOT NULL,
    settings TEXT NOT NULL,
    seed INTEGER NOT NULL,
    parameters TEXT,
    expected TEXT NOT NULL,
    observed TEXT,
    verdict TEXT NOT NULL,
    failures TEXT NOT NULL,
    evidence TEXT NOT NULL,
    trace TEXT NOT NULL,
    virtual_s REAL NOT NULL,
    wall_s REAL NOT NULL,
    directory TEXT,
    image TEXT,
    code TEXT NOT NULL,
    qemu TEXT,
    PRIMARY KEY (variant, settings, seed)
) WITHOUT ROWID;
