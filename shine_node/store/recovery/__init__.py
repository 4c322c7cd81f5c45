"""What a node does about a store that is damaged: keep the file, and go on from a backup or from another server."""
