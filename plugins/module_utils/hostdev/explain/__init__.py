"""One declared device through every link of the chain; the first broken link is named with its mend."""
