// kubelet-judge serves the kubelet's PodResources service from Kubernetes' own types and Google's own gRPC server.
//
// In: the path of the socket to make, and a file of JSON (protobuf's mapping) with the answers: `list` and `allocatable`.
// Out: the service, until it is ended; the line `ready` on standard output once it listens. It knows nothing of the
// agent's reading of these messages, so it judges that. What can go wrong: a file that does not hold these messages, or a
// place where no socket can be made; both end it with status 1.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kubelet-judge SOCKET FILE")
		os.Exit(64)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(socket, file string) error {
	answers, err := read(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	// As the kubelet does it: the socket of the one before is in the way.
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, answers)
	fmt.Println("ready")
	return server.Serve(listener)
}

// answers are the same for every call.
type answers struct {
	podresources.UnimplementedPodResourcesListerServer
	list        *podresources.ListPodResourcesResponse
	allocatable *podresources.AllocatableResourcesResponse
}

func read(file string) (*answers, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var parts struct {
		List, Allocatable json.RawMessage
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, err
	}
	all := &answers{
		list:        &podresources.ListPodResourcesResponse{},
		allocatable: &podresources.AllocatableResourcesResponse{},
	}
	if err := protojson.Unmarshal(parts.List, all.list); err != nil {
		return nil, err
	}
	return all, protojson.Unmarshal(parts.Allocatable, all.allocatable)
}

func (a *answers) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return a.list, nil
}

func (a *answers) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return a.allocatable, nil
}

func (a *answers) Get(_ context.Context, asked *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	for _, pod := range a.list.PodResources {
		if pod.Name == asked.PodName && pod.Namespace == asked.PodNamespace {
			return &podresources.GetPodResourcesResponse{PodResources: pod}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found", asked.PodName, asked.PodNamespace)
}
