package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// timeAllocate makes the same Allocate call many times, one after the other, and prints how long the calls took.
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
	taken := make([]time.Duration, 0, *calls)
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
			taken = append(taken, spent)
		}
	}
	say(about(summary(taken), told(first, nil)))
	return nil
}

func summary(taken []time.Duration) row {
	sorted := slices.Sorted(slices.Values(taken))
	var sum time.Duration
	for _, one := range sorted {
		sum += one
	}
	at := func(share float64) float64 { return us(sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]) }
	return row{"n": len(sorted), "p50_us": at(0.5), "p99_us": at(0.99), "max_us": at(1), "mean_us": us(sum) / float64(len(sorted))}
}

func us(span time.Duration) float64 { return float64(span.Nanoseconds()) / 1000 }
