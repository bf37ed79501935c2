package main

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// method calls one RPC with a request given as JSON.
type method func(ctx context.Context, plugin api.DevicePluginClient, request json.RawMessage) (proto.Message, error)

// methods are the calls with one answer; the kubelet's stand-in follows ListAndWatch by itself.
var methods = map[string]method{
	"GetDevicePluginOptions": unary[api.Empty](api.DevicePluginClient.GetDevicePluginOptions),
	"GetPreferredAllocation": unary[api.PreferredAllocationRequest](api.DevicePluginClient.GetPreferredAllocation),
	"Allocate":               unary[api.AllocateRequest](api.DevicePluginClient.Allocate),
	"PreStartContainer":      unary[api.PreStartContainerRequest](api.DevicePluginClient.PreStartContainer),
}

// unary makes a method of a stub; Q is the request's type, P its pointer.
func unary[Q any, P interface {
	*Q
	proto.Message
}, A proto.Message](call func(api.DevicePluginClient, context.Context, P, ...grpc.CallOption) (A, error)) method {
	return func(ctx context.Context, plugin api.DevicePluginClient, given json.RawMessage) (proto.Message, error) {
		request := P(new(Q))
		if len(given) > 0 {
			if err := protojson.Unmarshal(given, request); err != nil {
				return nil, err
			}
		}
		return call(plugin, ctx, request)
	}
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// told returns an answer, or the refusal in its place, as the keys of a row.
func told(answer proto.Message, err error) row {
	if err != nil {
		said := status.Convert(err)
		return row{"code": said.Code().String(), "message": said.Message()}
	}
	if err := whole(answer); err != nil {
		return row{"code": "Undecoded", "message": err.Error()}
	}
	// every field, under the names of the .proto file
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(answer)
	if err != nil {
		return row{"code": "Undecoded", "message": err.Error()}
	}
	return row{"response": json.RawMessage(text)}
}

// whole refuses an answer with bytes that the kubelet's messages have no field for.
func whole(answer proto.Message) error {
	return protorange.Range(answer.ProtoReflect(), func(path protopath.Values) error {
		if part, ok := path.Index(-1).Value.Interface().(protoreflect.Message); ok && len(part.GetUnknown()) > 0 {
			return fmt.Errorf("unknown fields in %s: %x", path.Path, part.GetUnknown())
		}
		return nil
	})
}
