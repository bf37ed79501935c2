package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// timeAllocate makes the same Allocate call many times, one after the other, and prints how many
// microseconds each took, and the answer.
func timeAllocate(arguments []string) error {
	flags := flag.NewFlagSet("allocate", flag.ExitOnError)
	socket := flags.String("socket", "", "the plugin's socket")
	ids := flags.String("ids", "", "what one container asks for, separated by commas")
	calls := flags.Int("n", 10000, "calls that are counted")
	warm := flags.Int("warm", 200, "calls before them")
	flags.Parse(arguments)
	connection, err := dial(*socket)
	if err != nil {
		return err
	}
	defer connection.Close()
	plugin := api.NewDevicePluginClient(connection)
	container := &api.ContainerAllocateRequest{DevicesIds: strings.Split(*ids, ",")}
	request := &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{container}}
	var first *api.AllocateResponse
	taken := make([]float64, 0, *calls)
	for turn := range *warm + *calls {
		begin := time.Now()
		answer, err := plugin.Allocate(context.Background(), request)
		spent := time.Since(begin)
		if err != nil {
			return err
		}
		if first == nil {
			first = answer
		} else if !proto.Equal(first, answer) {
			return fmt.Errorf("call %d was answered otherwise than the first: %v, %v", turn, first, answer)
		}
		if turn >= *warm {
			taken = append(taken, float64(spent.Nanoseconds())/1000)
		}
	}
	say(about(row{"us": taken}, told(first, nil)))
	return nil
}
