// The container runtime of the tests, at one version; binaries.py builds the tools named here.
module vfio.passthrough/testcontainerd

go 1.26.0

require github.com/containerd/containerd/v2 v2.4.2

tool (
	github.com/containerd/containerd/v2/cmd/containerd
	github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
	github.com/containerd/containerd/v2/cmd/ctr
)
