package wirelist_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/pleg/wirelist"
)

// A node changes at random. After each step the lister must return what the ordinary client
// returns, and its earlier results must not have changed.
func TestLister_RandomChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		b := newBed(t)
		_, all := node(6)
		spare := all.Containers[9:]
		all.Containers = all.Containers[:9]
		var told, copies []*runtimeapi.Container
		for step := range 12 {
			spare = live(rnd, all, spare)
			now := b.containers(encode(all))
			for i := range told {
				require.True(t, proto.Equal(copies[i], told[i]), "seed %d, step %d: item %d was modified", seed, step, i)
			}
			told, copies = now, nil
			for _, c := range now {
				copies = append(copies, proto.CloneOf(c))
			}
		}
	}
}

// live makes one change to a node and returns the containers that the node does not have.
func live(rnd *rand.Rand, node *runtimeapi.ListContainersResponse, spare []*runtimeapi.Container) []*runtimeapi.Container {
	all := node.Containers
	at := rnd.IntN(max(len(all), 1))
	switch what := rnd.IntN(8); {
	case what == 0 && len(spare) > 0:
		node.Containers = slices.Insert(all, at, spare[0])
		return spare[1:]
	case len(all) == 0 || what == 1: // no change
	case what == 2:
		spare = append(slices.Clone(spare), all[at])
		node.Containers = slices.Delete(all, at, at+1)
	case what == 3:
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	case what == 4:
		all[at].Labels[fmt.Sprint(rnd.IntN(3))] = fmt.Sprint(rnd.IntN(3))
	case what == 5:
		delete(all[at].Annotations, fmt.Sprint(rnd.IntN(3)))
		all[at].Annotations[fmt.Sprint(rnd.IntN(3))] = fmt.Sprint(rnd.IntN(3))
	case what == 6: // two containers with the same id
		all[at].Id = all[rnd.IntN(len(all))].GetId()
	default:
		all[at].State = runtimeapi.ContainerState(rnd.IntN(4))
	}
	return spare
}

// Lists may be requested concurrently, with different filters and in any order.
func TestConcurrentLists(t *testing.T) {
	t.Parallel()
	boxes, _ := node(20)
	half := &runtimeapi.ListPodSandboxResponse{Items: boxes.Items[10:]}
	changed := proto.CloneOf(boxes)
	for _, box := range changed.GetItems() {
		box.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	filters := map[string]*runtimeapi.ListPodSandboxResponse{"all": boxes, "half": half, "changed": changed}
	conn := serve(t, map[string]handler{listSandboxes: func(request []byte) ([][]byte, error) {
		var r runtimeapi.ListPodSandboxRequest
		if err := proto.Unmarshal(request, &r); err != nil {
			return nil, err
		}
		items := slices.Clone(filters[r.GetFilter().GetId()].GetItems())
		rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		return [][]byte{encode(&runtimeapi.ListPodSandboxResponse{Items: items})}, nil
	}})
	l, err := wirelist.New(wirelist.Config{Conn: conn})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for id, want := range filters {
		items := inOrder(want.GetItems())
		for range 3 {
			wg.Go(func() {
				for range 30 {
					got, err := l.ListPodSandbox(t.Context(), &runtimeapi.PodSandboxFilter{Id: id})
					if err != nil || !slices.EqualFunc(items, inOrder(got), func(a, b *runtimeapi.PodSandbox) bool { return proto.Equal(a, b) }) {
						t.Errorf("%s: %d items, %v", id, len(got), err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}
