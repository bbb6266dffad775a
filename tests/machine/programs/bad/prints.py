print("no training here")
