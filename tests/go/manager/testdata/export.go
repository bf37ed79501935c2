// Laid over KubeVirt's device manager at build time: what a program outside of the package needs of it.

package device_manager

// the constant of this name is taken out of the package's own file at build time
var pciBasePath string

// SetBase names the folder in which the devices are looked for.
func SetBase(folder string) { pciBasePath = folder }

// Discover is the function that virt-handler calls at each refresh; permitted is vendor:device -> resource.
func Discover(permitted map[string]string) map[string][]*PCIDevice {
	return discoverPermittedHostPCIDevices(permitted)
}

// Addresses returns the addresses of what was discovered.
func Addresses(devices []*PCIDevice) []string {
	found := make([]string, 0, len(devices))
	for _, one := range devices {
		found = append(found, one.pciAddress)
	}
	return found
}
