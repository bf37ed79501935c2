// KubeVirt's own discovery of PCI devices, over the root that is named: the peer of the benchmark.
//
// For each line on standard input it looks once, and prints how many nanoseconds that took and which addresses it found.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"log"
	"os"
	"path/filepath"
	"time"

	manager "kubevirt.io/kubevirt/pkg/virt-handler/device-manager"
)

func main() {
	root := flag.String("root", "/", "the root below which sys/bus/pci/devices is")
	resource := flag.String("resource", "example.com/gpu", "the resource of the permitted devices")
	id := flag.String("id", "", "vendor:device that is permitted")
	flag.Parse()
	manager.SetBase(filepath.Join(*root, "sys/bus/pci/devices"))
	permitted := map[string]string{*id: *resource}
	lines, answers := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		begin := time.Now()
		found := manager.Discover(permitted)
		taken := time.Since(begin)
		if err := answers.Encode(map[string]any{"ns": taken.Nanoseconds(), "found": manager.Addresses(found[*resource])}); err != nil {
			log.Fatal(err)
		}
	}
}
