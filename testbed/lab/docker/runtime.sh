#!/bin/sh
# runc for containers whose network namespace is there already: the annotation testbed.namespace has its path.
last=
for word; do
    if [ "$last" = --bundle ]; then
        found=$(sed -n 's|.*"testbed.namespace":"\([^"]*\)".*|\1|p' "$word/config.json")
        sed -i "s|{\"type\":\"network\"}|{\"type\":\"network\",\"path\":\"$found\"}|" "$word/config.json"
    fi
    last=$word
done
exec runc "$@"
