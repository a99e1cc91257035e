package plan

import (
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const doc = "lifecycle/podrunner/doc.go"

func deviations() []deviation {
	return []deviation{
		clockSetBack(), noHash(), wholeDefinition(), failedStarts(), backoffKeyDefinition(),
		startBrokenOff(), waitsOut(),
		memoryInUse(), podLevelLimitsLate(), classChange(), podLevelShares(),
		noNamespaces(), ownPolicies(), neverRemoved(), never(), stray(), otherSandbox(), straysHold(),
		ephemeralOfStopped(), pastInitContainers(), over(), heldResize(),
		forgottenEphemeral(), createdBefore(), unknownWithoutSandbox(), straysStopped(), cpuWithMemory(), limitsRemoved(), podCgroupAlone(), sidecarLimit(), restartAllMessage(), restartAllCreated(), restartAllBackoff(), initBackoff(), sandboxBackoff(), overAgain(), removals(),
	}
}

func rule(name string, class judge.Class, sentence string) judge.Rule[*World] {
	return judge.Rule[*World]{Name: name, Class: class, Sentence: sentence, Doc: doc}
}
