package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const patience = 10 * time.Second

// kubelet serves Registration, dials each plugin back and follows its lists, which it hands to `events`.
type kubelet struct {
	api.UnimplementedRegistrationServer
	folder  string
	events  func(row)
	server  *grpc.Server
	lock    sync.Mutex
	plugins map[string]*grpc.ClientConn
	streams sync.WaitGroup
}

func serve(folder string, events func(row)) (*kubelet, error) {
	made := &kubelet{folder: folder, events: events, server: grpc.NewServer(), plugins: map[string]*grpc.ClientConn{}}
	listener, err := net.Listen("unix", filepath.Join(folder, "kubelet.sock"))
	if err != nil {
		return nil, err
	}
	api.RegisterRegistrationServer(made.server, made)
	go made.server.Serve(listener)
	return made, nil
}

// Register does as the kubelet does: it asks the plugin for its options before it answers, and opens the stream behind its answer.
func (k *kubelet) Register(ctx context.Context, request *api.RegisterRequest) (*api.Empty, error) {
	at := now()
	if request.GetVersion() != api.Version {
		return nil, status.Errorf(codes.InvalidArgument, "version %q is not %s", request.GetVersion(), api.Version)
	}
	connection, err := dial(filepath.Join(k.folder, request.GetEndpoint()))
	if err != nil {
		return nil, err
	}
	plugin := api.NewDevicePluginClient(connection)
	options, err := plugin.GetDevicePluginOptions(ctx, &api.Empty{})
	resource := request.GetResourceName()
	k.events(about(row{"event": "options", "resource": resource}, told(options, err)))
	if err != nil {
		return nil, err
	}
	k.lock.Lock()
	if old := k.plugins[resource]; old != nil {
		old.Close()
	}
	k.plugins[resource] = connection
	k.lock.Unlock()
	k.events(about(row{"event": "registered", "resource": resource, "ns": at}, told(request, nil)))
	k.streams.Add(1)
	go k.follow(resource, plugin)
	return &api.Empty{}, nil
}

func (k *kubelet) follow(resource string, plugin api.DevicePluginClient) {
	defer k.streams.Done()
	stream, err := plugin.ListAndWatch(context.Background(), &api.Empty{})
	for err == nil {
		var list *api.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			k.events(about(row{"event": "list", "resource": resource, "ns": now()}, told(list, nil)))
		}
	}
	ended := row{"event": "ended", "resource": resource, "ns": now()}
	if errors.Is(err, io.EOF) {
		k.events(about(ended, row{"code": codes.OK.String()}))
	} else {
		k.events(about(ended, told(nil, err)))
	}
}

func (k *kubelet) stop() {
	k.server.Stop()
	k.lock.Lock()
	for _, connection := range k.plugins {
		connection.Close()
	}
	k.lock.Unlock()
	k.streams.Wait()
}

// order is a call that the test wants made on the plugin of a resource.
type order struct {
	Resource string          `json:"resource"`
	Method   string          `json:"method"`
	Request  json.RawMessage `json:"request"`
}

func (k *kubelet) carryOut(wanted order) (row, error) {
	call := methods[wanted.Method]
	k.lock.Lock()
	connection := k.plugins[wanted.Resource]
	k.lock.Unlock()
	if call == nil || connection == nil {
		return nil, fmt.Errorf("no method %q, or no plugin of %q", wanted.Method, wanted.Resource)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := call(ctx, api.NewDevicePluginClient(connection), wanted.Request)
	return about(row{"event": "answer", "resource": wanted.Resource, "method": wanted.Method}, told(answer, err)), nil
}

// standIn serves a plugin folder and makes the calls that come as JSON objects on standard input, until that ends.
func standIn(arguments []string) error {
	flags := flag.NewFlagSet("kubelet", flag.ExitOnError)
	folder := flags.String("folder", "", "the plugin folder, in which kubelet.sock is made")
	flags.Parse(arguments)
	made, err := serve(*folder, say)
	if err != nil {
		return err
	}
	defer made.stop()
	say(row{"event": "serving", "ns": now()})
	orders := json.NewDecoder(os.Stdin)
	for {
		var wanted order
		if err := orders.Decode(&wanted); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := made.carryOut(wanted)
		if err != nil {
			return err
		}
		say(answer)
	}
}

func about(what, told row) row {
	for key, value := range told {
		what[key] = value
	}
	return what
}
