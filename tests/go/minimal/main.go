// The least device plugin that a Go author would write: the peer of the benchmarks. What it answers it reads from a file once;
// it looks at no device, follows no change and knows nothing of a kubelet that restarts.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const endpoint = "minimal.sock"

// plugin is the file: the resource, its list of devices, and what a container gets with each; messages by their .proto names.
type plugin struct {
	api.UnimplementedDevicePluginServer
	Resource string                     `json:"resource"`
	List     json.RawMessage            `json:"list"`
	Answers  map[string]json.RawMessage `json:"answers"`

	list    *api.ListAndWatchResponse
	answers map[string]*api.ContainerAllocateResponse
	done    <-chan struct{}
}

func read(file string) (*plugin, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	made := &plugin{list: &api.ListAndWatchResponse{}, answers: map[string]*api.ContainerAllocateResponse{}}
	if err := json.Unmarshal(text, made); err != nil {
		return nil, err
	}
	for id, given := range made.Answers {
		made.answers[id] = &api.ContainerAllocateResponse{}
		if err := protojson.Unmarshal(given, made.answers[id]); err != nil {
			return nil, err
		}
	}
	return made, protojson.Unmarshal(made.List, made.list)
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := stream.Send(p.list); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-stream.Context().Done():
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	made := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer, err := p.container(container.DevicesIds)
		if err != nil {
			return nil, err
		}
		made.ContainerResponses = append(made.ContainerResponses, answer)
	}
	return made, nil
}

// container joins what each device brings: values by commas, each node once.
func (p *plugin) container(ids []string) (*api.ContainerAllocateResponse, error) {
	values := map[string][]string{}
	made := &api.ContainerAllocateResponse{Envs: map[string]string{}}
	for _, id := range ids {
		answer := p.answers[id]
		if answer == nil {
			return nil, status.Errorf(codes.NotFound, "no device %s", id)
		}
		for name, value := range answer.Envs {
			values[name] = append(values[name], value)
		}
		made.Mounts = append(made.Mounts, answer.Mounts...)
		for _, node := range answer.Devices {
			if !slices.ContainsFunc(made.Devices, func(had *api.DeviceSpec) bool { return had.HostPath == node.HostPath }) {
				made.Devices = append(made.Devices, node)
			}
		}
	}
	for name := range maps.Keys(values) {
		made.Envs[name] = strings.Join(values[name], ",")
	}
	return made, nil
}

func register(folder, resource string) error {
	connection, err := grpc.NewClient("unix:"+filepath.Join(folder, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: resource}
	_, err = api.NewRegistrationClient(connection).Register(context.Background(), request)
	return err
}

func run() error {
	folder := flag.String("folder", "", "the kubelet's plugin folder")
	file := flag.String("answers", "", "the file with the answers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	made, err := read(*file)
	if err != nil {
		return err
	}
	made.done = ctx.Done()
	listener, err := net.Listen("unix", filepath.Join(*folder, endpoint))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, made)
	go server.Serve(listener)
	if err := register(*folder, made.Resource); err != nil {
		return err
	}
	<-ctx.Done()
	server.GracefulStop()
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
