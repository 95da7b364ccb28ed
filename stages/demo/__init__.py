"""The whole loop on a tiny model, for people who want to see it turn before they read on."""
