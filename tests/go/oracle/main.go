// KubeVirt's launcher as an oracle: which host devices it makes of a machine's description and its container's environment.
//
// Each input on standard input is {"vmi": a VirtualMachineInstance, "env": {variable: value}}, each answer
// {"devices": [the XML of a <hostdev>, ...]} or {"error": what the launcher said}.
package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"log"
	"os"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/api"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/device/hostdevice/generic"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/device/hostdevice/gpu"
)

type question struct {
	VMI v1.VirtualMachineInstance `json:"vmi"`
	Env map[string]string         `json:"env"`
}

type answer struct {
	Devices []string `json:"devices,omitempty"`
	Error   string   `json:"error,omitempty"`
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

func reply(asked question) answer {
	os.Clearenv()
	for name, value := range asked.Env {
		os.Setenv(name, value)
	}
	made, err := devices(asked.VMI.Spec.Domain.Devices)
	if err != nil {
		return answer{Error: err.Error()}
	}
	var told answer
	for _, one := range made {
		text, err := xml.Marshal(one)
		if err != nil {
			return answer{Error: err.Error()}
		}
		told.Devices = append(told.Devices, string(text))
	}
	return told
}

func devices(asked v1.Devices) ([]api.HostDevice, error) {
	plain, err := generic.CreateHostDevices(asked.HostDevices)
	if err != nil {
		return nil, err
	}
	graphic, err := gpu.CreateHostDevices(asked.GPUs)
	return append(plain, graphic...), err
}
