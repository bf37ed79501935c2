"""Place 2, Kubernetes: the device plugin, the grant socket and the rendering of launcher pods."""
