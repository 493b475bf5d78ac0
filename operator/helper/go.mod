module agentworlds.dev/helper

go 1.26
