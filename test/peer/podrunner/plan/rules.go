package plan

import (
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const doc = "lifecycle/podrunner/doc.go"

func deviations() []deviation {
	return []deviation{
		clockSetBack(), deletion(), noHash(), wholeDefinition(), failedStarts(), backoffKeyDefinition(), backoffKeyResources(),
		oomKilledInit(), startBrokenOff(), waitsOut(),
		memoryInUse(), shownLate(), noResourcesShown(), classChange(), podLevelShares(), initResize(), requestsOnly(), idleResize(),
		restartAllForgotten(), noNamespaces(), ownPolicies(), neverRemoved(), never(), stray(), otherSandbox(), initialized(), straysHold(), ending(),
		ephemeralOfStopped(), pastInitContainers(), over(), unknownInit(), unknownBackoff(), changedInit(), heldResize(), sidecarResize(), sidecarResizeMessage(), changedSidecar(), nextAfterSidecar(),
		forgottenEphemeral(), createdBefore(), unknownWithoutSandbox(), restartAllEphemeral(), straysStopped(), limitsRemoved(), podCgroupAlone(), sidecarLimit(), podCgroupUnknown(), restartAllMessage(), restartAllCreated(), restartAllBackoff(), initBackoff(), sandboxBackoff(), overAgain(), removals(),
	}
}

func rule(name string, class judge.Class, sentence string) judge.Rule[*World] {
	return judge.Rule[*World]{Name: name, Class: class, Sentence: sentence, Doc: doc}
}

func defect(name, item, sentence string) judge.Rule[*World] {
	return judge.Rule[*World]{Name: name, Class: judge.DefectOfOurs, Item: item, Sentence: sentence}
}
