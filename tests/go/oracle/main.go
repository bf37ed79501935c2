// KubeVirt's launcher as an oracle: which host devices it makes of a machine's description and its container's environment.
//
// Each input on standard input is {"vmi": a VirtualMachineInstance, "env": {variable: value}, "networkInfo": what its file
// network-info holds}, each answer {"devices": [the XML of a <hostdev>, ...]}, {"error": what the launcher said} or
// {"panic": what it died of}.
package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/api"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/device/hostdevice/generic"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/device/hostdevice/gpu"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/device/hostdevice/sriov"
)

type question struct {
	VMI v1.VirtualMachineInstance `json:"vmi"`
	Env map[string]string         `json:"env"`

	NetworkInfo string `json:"networkInfo"`
}

type answer struct {
	Devices []string `json:"devices,omitempty"`
	Error   string   `json:"error,omitempty"`
	Panic   string   `json:"panic,omitempty"`
}

func main() {
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked question
		if err := questions.Decode(&asked); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		if err := answers.Encode(reply(asked)); err != nil {
			log.Fatal(err)
		}
	}
}

func reply(asked question) (told answer) {
	defer func() {
		if died := recover(); died != nil {
			told = answer{Panic: fmt.Sprint(died)}
		}
	}()
	os.Clearenv()
	for name, value := range asked.Env {
		os.Setenv(name, value)
	}
	made, err := devices(asked.VMI.Spec.Domain.Devices, asked.NetworkInfo)
	if err != nil {
		return answer{Error: err.Error()}
	}
	for _, one := range made {
		text, err := xml.Marshal(one)
		if err != nil {
			return answer{Error: err.Error()}
		}
		told.Devices = append(told.Devices, string(text))
	}
	return told
}

func devices(asked v1.Devices, networkInfo string) ([]api.HostDevice, error) {
	made, err := generic.CreateHostDevices(asked.HostDevices)
	if err != nil {
		return nil, err
	}
	graphic, err := gpu.CreateHostDevices(asked.GPUs)
	if err != nil || networkInfo == "" {
		return append(made, graphic...), err
	}
	pool, err := sriov.NewPCIAddressPoolWithNetworkStatus([]byte(networkInfo))
	if err != nil {
		return nil, err
	}
	functions, err := sriov.CreateHostDevicesFromIfacesAndPool(asked.Interfaces, pool)
	return append(append(made, graphic...), functions...), err
}
