package status

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// statusFacts adds all fields of a status to facts, under a prefix.
func statusFacts(f judge.Facts, prefix string, s *corev1.PodStatus) {
	f[prefix+"phase"] = string(s.Phase)
	f[prefix+"reason"], f[prefix+"message"] = s.Reason, strings.Trim(encode(s.Message), `"`)
	f[prefix+"qos"] = string(s.QOSClass)
	f[prefix+"generation"] = strconv.FormatInt(s.ObservedGeneration, 10)
	f[prefix+"start time"] = moment(s.StartTime)
	f[prefix+"pod IPs"] = fmt.Sprint(s.PodIP, s.PodIPs)
	f[prefix+"host IPs"] = fmt.Sprint(s.HostIP, s.HostIPs)
	f[prefix+"resources"], f[prefix+"allocated resources"] = encode(s.Resources), encode(s.AllocatedResources)
	f[prefix+"claims"] = encode(s.ResourceClaimStatuses) + encode(s.ExtendedResourceClaimStatus)
	seen := map[corev1.PodConditionType]int{}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		name := prefix + "condition " + string(c.Type)
		if seen[c.Type]++; seen[c.Type] > 1 {
			name += " again"
		}
		f[name] = strings.Join([]string{string(c.Status), c.Reason, c.Message}, "|")
		f[name+" generation"] = strconv.FormatInt(c.ObservedGeneration, 10)
		f[name+" since"] = moment(&c.LastTransitionTime)
		f[name+" probed"] = moment(&c.LastProbeTime)
	}
	containerFacts(f, prefix+"init ", s.InitContainerStatuses)
	containerFacts(f, prefix+"container ", s.ContainerStatuses)
	containerFacts(f, prefix+"ephemeral ", s.EphemeralContainerStatuses)
}

func containerFacts(f judge.Facts, prefix string, list []corev1.ContainerStatus) {
	var order []string
	for i := range list {
		st := &list[i]
		order = append(order, st.Name)
		name := prefix + st.Name + "/"
		f[name+"state"], f[name+"state message"] = stateFacts(st.State)
		f[name+"last"], f[name+"last message"] = stateFacts(st.LastTerminationState)
		f[name+"restarts"] = strconv.Itoa(int(st.RestartCount))
		f[name+"image"], f[name+"image ID"], f[name+"id"] = st.Image, st.ImageID, st.ContainerID
		f[name+"ready"] = strconv.FormatBool(st.Ready)
		f[name+"started"] = encode(st.Started)
		f[name+"resources"], f[name+"allocated"] = encode(st.Resources), encode(st.AllocatedResources)
		f[name+"user"], f[name+"mounts"] = encode(st.User), encode(st.VolumeMounts)
		f[name+"devices"], f[name+"stop signal"] = encode(st.AllocatedResourcesStatus), encode(st.StopSignal)
	}
	f[prefix+"order"] = strings.Join(order, " ")
}

// stateFacts returns a state without its message, and the message as JSON has it.
func stateFacts(state corev1.ContainerState) (rest, message string) {
	switch {
	case state.Terminated != nil:
		end := *state.Terminated
		message, end.Message = end.Message, ""
		state.Terminated = &end
	case state.Waiting != nil:
		waiting := *state.Waiting
		message, waiting.Message = waiting.Message, ""
		state.Waiting = &waiting
	}
	return encode(state), strings.Trim(encode(message), `"`)
}

// parse reads back the list of containers from facts of containerFacts, as far as phases and
// conditions depend on them.
func parse(f judge.Facts, prefix string) (list []corev1.ContainerStatus) {
	for name := range strings.FieldsSeq(f[prefix+"order"]) {
		st := corev1.ContainerStatus{Name: name, Ready: f[prefix+name+"/ready"] == "true"}
		decode(f[prefix+name+"/state"], &st.State)
		decode(f[prefix+name+"/last"], &st.LastTerminationState)
		decode(f[prefix+name+"/started"], &st.Started)
		list = append(list, st)
	}
	return list
}

// encode returns the JSON form of a value; "" for an empty one.
func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if s := string(text); s != "null" && s != "{}" && s != "[]" && s != `""` {
		return s
	}
	return ""
}

func decode(text string, into any) {
	if text != "" {
		_ = json.Unmarshal([]byte(text), into)
	}
}

func moment(t *metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("15:04:05.999")
}

func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }

func cloneAll[M proto.Message](list []M) (out []M) {
	for _, m := range list {
		out = append(out, clone(m))
	}
	return out
}
